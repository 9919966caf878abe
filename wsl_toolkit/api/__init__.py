"""What people do from Python: experiments, studies, proofs, and our losses in a training loop of their own.

Everything here is offered at the top, `import wsl_toolkit as wsl`, and loaded on first use.
"""
