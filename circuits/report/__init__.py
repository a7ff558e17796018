"""What people see of verdicts: tables now, the page later."""
