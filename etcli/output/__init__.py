"""Results for people and machines: tables, progress, JSON, JUnit."""
