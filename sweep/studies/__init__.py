"""What to fit, and how many: sweep files, plans, strategies, forecasts."""
