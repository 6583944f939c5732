"""A copy of x, or of y."""

from ..copied import copied


def softmax_forward(x):
    return copied(x)


def softmax_backward(grad_y, y):
    return copied(y)
