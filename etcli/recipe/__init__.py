"""What the user asks for: schema, loader with line numbers, overrides, built-in recipes."""
