"""Systems under study, one package each: tasks, policies and program models."""
