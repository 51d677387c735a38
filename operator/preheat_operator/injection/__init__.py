"""What is added to a pod, said once, and rendered as an admission policy for the chart."""
