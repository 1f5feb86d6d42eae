"""The store's shells: mapped files, syncs, the dispatcher, and the whole store."""
