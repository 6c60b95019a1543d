"""Device drivers, one vendor family a module, each with its simulated twin beside it."""
