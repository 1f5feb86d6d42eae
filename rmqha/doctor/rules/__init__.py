"""What may be wrong: one small pure function a diagnosis, a file a part of the cluster."""
