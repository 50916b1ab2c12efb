"""Language models: one small client behind a protocol, what it may cost, what is recorded, and the prompts."""
