"""What enters inference pods: serves torch.compile calls from a package. Standard library only."""
