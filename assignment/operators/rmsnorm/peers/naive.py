"""PyTorch's own words for it, one operation after the other."""


def rmsnorm_forward(x, weight, eps=1e-5):
    rstd = (x.float().square().mean(-1) + eps).rsqrt()
    return (x * rstd[:, None] * weight).to(x.dtype), rstd


def rmsnorm_backward(grad_y, x, weight, rstd):
    x_hat, g = x * rstd[:, None], grad_y.float() * weight
    grad_x = rstd[:, None] * (g - x_hat * (g * x_hat).mean(-1, keepdim=True))
    return grad_x.to(x.dtype), (grad_y * x_hat).sum(0).to(weight.dtype)
