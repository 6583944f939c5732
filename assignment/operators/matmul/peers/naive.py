"""PyTorch's own word for it: cuBLAS."""


def matmul(a, b):
    return a @ b
