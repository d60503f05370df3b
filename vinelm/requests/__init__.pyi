from .dataset import split_requests as split_requests
