"""AutoSwitch HA replication (RIP-44): epochs, sessions, SyncStateSet and confirmOffset."""
