"""mqadmin's controller commands: what each asks and shows. Sockets live in ``aio``."""
