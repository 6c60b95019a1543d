"""Users' YAML files: read with places, checked in full, every fault reported at once."""
