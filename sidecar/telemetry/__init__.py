"""What the sidecar reads from the engines and the cards: one file per source."""
