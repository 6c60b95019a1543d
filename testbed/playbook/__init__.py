"""The playbook language: loader, schema, expressions, plan."""
