"""What is known when a step is planned: acceptance estimates and measured costs."""
