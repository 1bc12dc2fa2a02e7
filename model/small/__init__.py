"""The small model: a sentence encoder whose head corrects predictions where there is time to ask it."""
