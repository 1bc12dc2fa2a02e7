"""A small program for GPU hosts: their cards by NVML as an exporter's page, and weights read ahead."""
