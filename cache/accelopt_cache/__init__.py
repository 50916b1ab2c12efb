"""The store on disk."""
