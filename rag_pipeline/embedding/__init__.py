"""Room of the package."""
