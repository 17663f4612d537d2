"""Engines that compute gradients and update weights: this process, worker processes, FSDP, Ray, Tinker."""
