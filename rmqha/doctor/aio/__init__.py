"""The shells of the doctor: who asks nodes, reads files and looks at the machine."""
