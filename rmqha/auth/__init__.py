"""Who may do what: users, their policies, signatures, and what each request asks for."""
