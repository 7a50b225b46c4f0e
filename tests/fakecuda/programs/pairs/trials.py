"""Programs of further kinds that people write, each with a habit whose cost in memory is easily missed."""

from __future__ import annotations

import copy

import torch
from pairs.kit import DEVICE, REMEDY, Layer, floats, integers, program, train
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


@program(sparse="sparse-gradients")
def skipgram() -> None:
    """Vectors of words: a step looks up few rows of large tables, whose gradients are as large as the tables."""
    sparse = REMEDY == "sparse"
    centre, around = (nn.Embedding(400_000, 128, sparse=sparse).to(DEVICE) for _ in range(2))
    weights = [*centre.parameters(), *around.parameters()]
    optimizer = torch.optim.SparseAdam(weights) if sparse else torch.optim.Adam(weights)
    for _ in range(4):
        word, context, noise = integers(4096), integers(4096), integers(4096, 8)
        v = centre(word)
        good = functional.logsigmoid((v * around(context)).sum(-1))
        bad = functional.logsigmoid(-(around(noise) @ v[..., None])[..., 0]).sum(-1)
        loss = -(good + bad).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program(sparse="sparse-gradients")
def bags() -> None:
    """Clicks: sums of a table's rows, trained with plain SGD, which allocates nothing."""
    table = nn.EmbeddingBag(500_000, 64, mode="sum", sparse=REMEDY == "sparse").to(DEVICE)
    top = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1)).to(DEVICE)
    optimizer = torch.optim.SGD([*table.parameters(), *top.parameters()], lr=0.1)
    for _ in range(4):
        words, starts = integers(2048 * 20), torch.arange(0, 2048 * 20, 20, device=DEVICE)
        loss = functional.binary_cross_entropy_with_logits(top(table(words, starts))[:, 0], floats(2048))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program()
def tied() -> None:
    """The word in the middle from those around it: the last layer's weight is the table, whose gradient is dense."""
    table = nn.Embedding(100_000, 128).to(DEVICE)
    train(
        table,
        lambda: (integers(64, 8), integers(64)),
        lambda x, y: functional.cross_entropy(functional.linear(table(x).mean(1), table.weight), y),
        torch.optim.Adam,
    )


@program(half="accumulation")
def tagger() -> None:
    """A CRF over an LSTM: each position of the forward algorithm makes a table of tags by tags for each text."""
    table, mix = nn.Embedding(20_000, 128), nn.LSTM(128, 128, batch_first=True, bidirectional=True)
    emit, moves = nn.Linear(256, 64), nn.Parameter(torch.zeros(64, 64))
    net = nn.ModuleList([table, mix, emit])
    net.register_parameter("moves", moves)
    net.to(DEVICE)

    def partition(emissions: torch.Tensor) -> torch.Tensor:
        alpha = emissions[:, 0]
        for at in range(1, emissions.shape[1]):
            alpha = torch.logsumexp(alpha[:, :, None] + net.moves[None] + emissions[:, at, None], 1)
        return torch.logsumexp(alpha, -1)

    def loss_of(x: torch.Tensor, tags: torch.Tensor) -> torch.Tensor:
        emissions = emit(mix(table(x))[0])
        gold = emissions.gather(-1, tags[..., None]).sum((1, 2)) + net.moves[tags[:, :-1], tags[:, 1:]].sum(1)
        return (partition(emissions) - gold).mean()

    train(net, lambda: (integers(64, 96), integers(64, 96)), loss_of, torch.optim.Adam)


@program(half="accumulation")
def transducer() -> None:
    """RNN-T: each frame with each of the symbols so far gives scores of the whole vocabulary."""
    encoder = nn.LSTM(80, 256, num_layers=2, batch_first=True)
    predictor, symbols = nn.GRU(128, 256, batch_first=True), nn.Embedding(512, 128)
    joint = nn.Sequential(nn.Tanh(), nn.Linear(256, 512))
    net = nn.ModuleList([encoder, predictor, symbols, joint]).to(DEVICE)

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        frames, past = encoder(x)[0], predictor(symbols(y))[0]
        scores = joint(frames[:, :, None] + past[:, None]).log_softmax(-1)
        blank = scores[..., 0]
        label = scores[:, :, :-1].gather(-1, y[:, None, 1:, None].expand(-1, scores.shape[1], -1, -1))[..., 0]
        alpha, loss = blank[:, 0].cumsum(-1), 0
        for at in range(1, x.shape[1]):
            alpha = torch.logaddexp(alpha + blank[:, at], functional.pad(alpha[:, :-1] + label[:, at], (1, 0)))
        return loss - alpha[:, -1].mean()

    train(net, lambda: (floats(8, 100, 80), integers(8, 40)), loss_of, torch.optim.Adam)


@program(freeze="untrained-gradients")
def momentum() -> None:
    """MoCo whose encoder of keys is a copy that requires gradients and takes part in the loss."""
    width = 1024
    query = nn.Sequential(*[m for _ in range(6) for m in (nn.Linear(width, width), nn.ReLU())], nn.Linear(width, 128))
    query.to(DEVICE)
    key = copy.deepcopy(query)
    if REMEDY == "freeze":
        key.requires_grad_(False)
    optimizer = torch.optim.SGD(query.parameters(), 0.03, momentum=0.9)
    queue = functional.normalize(floats(128, 6144), dim=0)
    for _ in range(4):
        q = functional.normalize(query(floats(512, width)))
        k = functional.normalize(key(floats(512, width)))
        scores = torch.cat([(q * k).sum(-1, keepdim=True), q @ queue], 1) / 0.07
        loss = functional.cross_entropy(scores, integers(len(q)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(key.parameters(), query.parameters(), strict=True):
                slow.lerp_(fast, 0.001)
        queue = torch.cat([k.detach().T, queue[:, : -len(k)]], 1)


class Rotary(nn.Module):
    def __init__(self, positions: int, width: int) -> None:
        super().__init__()
        angles = torch.outer(torch.arange(positions).float(), 10000 ** (-torch.arange(0, width, 2) / width))
        angles = torch.cat([angles, angles], -1)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)


class Turned(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.rotary = Rotary(65536, 64)
        self.qkv, self.out, self.norm = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (p.unflatten(-1, (-1, 64)).transpose(1, 2) for p in self.qkv(self.norm(x)).chunk(3, -1))
        cos, sin = self.rotary.cos[: x.shape[1]], self.rotary.sin[: x.shape[1]]
        q, k = (p * cos + torch.cat([-p[..., 32:], p[..., :32]], -1) * sin for p in (q, k))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(mixed.transpose(1, 2).flatten(2))


@program()
def rotary() -> None:
    """Cosines and sines of 65,536 positions in each of twelve layers, whose texts have 512."""
    table, layers = nn.Embedding(8000, 512), nn.Sequential(*[Turned(512) for _ in range(12)])
    last = nn.Linear(512, 8000)
    net = nn.ModuleList([table, layers, last]).to(DEVICE)
    train(
        net,
        lambda: (integers(4, 512), integers(4, 512)),
        lambda x, y: functional.cross_entropy(last(layers(table(x))).flatten(0, 1), y.flatten()),
    )


@program(clone="leak", cpu="leak")
def vectors() -> None:
    """The first position of each text is what counts; as a view it holds the states of all positions."""
    table, layers = nn.Embedding(8000, 512), nn.Sequential(*[Layer(512, 8, True) for _ in range(4)])
    nn.ModuleList([table, layers]).to(DEVICE)
    found = []
    with torch.no_grad():
        for _ in range(24):
            first = layers(table(integers(32, 256)))[:, 0]
            found.append(first.clone() if REMEDY == "clone" else first.cpu() if REMEDY == "cpu" else first)
        torch.cat(found)


@program(freeze="untrained-gradients")
def attack() -> None:
    """Robust accuracy: an attack in ten steps needs the gradient of the images; those of the weights pile up."""
    net = nn.Sequential(
        nn.Flatten(), nn.Linear(3072, 8192), nn.ReLU(), nn.Linear(8192, 8192), nn.ReLU(), nn.Linear(8192, 10)
    )
    net.to(DEVICE).eval().requires_grad_(REMEDY != "freeze")
    right = 0
    for _ in range(2):
        x, y = floats(512, 3, 32, 32), integers(512)
        noise = torch.zeros_like(x)
        for _ in range(10):
            noise.requires_grad_()
            loss = functional.cross_entropy(net(x + noise), y)
            loss.backward()
            noise = (noise.detach() + 0.01 * noise.grad.sign()).clamp(-0.03, 0.03)
        with torch.no_grad():
            right += (net(x + noise).argmax(1) == y).sum()


@program(none="keep-gradients")
def never_zeroed() -> None:
    """Gradients zeroed in place, where the optimizer allocates nothing."""
    net = nn.Sequential(nn.Linear(2048, 8192), nn.ReLU(), nn.Linear(8192, 8192), nn.ReLU(), nn.Linear(8192, 10))
    optimizer = torch.optim.SGD(net.to(DEVICE).parameters(), 0.1)
    for _ in range(6):
        functional.cross_entropy(net(floats(512, 2048)), integers(512)).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=REMEDY == "none")


@program(freeze="untrained-gradients")
def perceptual() -> None:
    """The network of a perceptual loss is not frozen: half of what it saves is for gradients of its weights."""
    blocks = [m for _ in range(6) for m in (nn.LayerNorm(512), nn.Linear(512, 1024), nn.GELU(), nn.Linear(1024, 512))]
    judge = nn.Sequential(*blocks).to(DEVICE).requires_grad_(REMEDY != "freeze")
    net = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 512)).to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(4):
        x, y = floats(16, 512, 256), floats(16, 512, 512)
        optimizer.zero_grad()
        with torch.no_grad():
            wanted = judge(y)
        functional.mse_loss(judge(net(x)), wanted).backward()
        optimizer.step()


@program(chunks="triplet-chunks")
def all_triplets() -> None:
    """All triplets of a batch: a cube of losses and its masks. Half of the batch would have an eighth of them."""
    count = 240
    net = nn.Sequential(nn.Linear(2048, 512), nn.ReLU(), nn.Linear(512, 128)).to(DEVICE)

    def loss_of(far: torch.Tensor, same: torch.Tensor) -> torch.Tensor:
        cube = functional.relu(far[:, :, None] - far[:, None] + 0.2)
        valid = (same[:, :, None] & ~same[:, None]).float()
        return (cube * valid).sum() / ((cube * valid > 1e-8).float().sum() + 1e-8)

    def batch_loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = functional.normalize(net(x))
        far, same = torch.cdist(z, z), y[:, None] == y
        if REMEDY != "chunks":
            return loss_of(far, same)
        parts = zip(far.chunk(8), same.chunk(8), strict=True)
        return sum(checkpoint(loss_of, *part, use_reentrant=False) for part in parts) / 8

    train(net, lambda: (floats(count, 2048), integers(count)), batch_loss, torch.optim.Adam)


@program(detach="leak")
def influence() -> None:
    """Influence of samples: products with the Hessian, each with a graph that the next one differentiates."""
    net = nn.Sequential(*[m for _ in range(6) for m in (nn.Linear(512, 512), nn.GELU())], nn.Linear(512, 10))
    weights = list(net.to(DEVICE).parameters())
    x, y = floats(256, 512), integers(256)
    vector = [torch.ones_like(weight) for weight in weights]
    estimate = vector
    for _ in range(8):
        first = torch.autograd.grad(functional.cross_entropy(net(x), y), weights, create_graph=True)
        product = torch.autograd.grad(first, weights, estimate, create_graph=REMEDY != "detach")
        estimate = [a + 0.99 * b - 0.01 * c for a, b, c in zip(vector, estimate, product, strict=True)]


@program(each="replaced-together")
def beams() -> None:
    """Beam search: after each word the caches of all layers are put into the order of the beams."""
    width, heads, count, half = 512, 8, 8, torch.bfloat16
    layers = nn.ModuleList([nn.Linear(width, 3 * width) for _ in range(count)]).to(DEVICE, half)
    table = nn.Embedding(8000, width).to(DEVICE, half)
    with torch.no_grad():
        words, order = integers(16), torch.arange(16, device=DEVICE)
        cache = [[floats(16, heads, 256, 64).to(half) for _ in range(2)] for _ in range(count)]
        for _ in range(8):
            h = table(words)
            for layer, pair in zip(layers, cache, strict=True):
                q, k, v = layer(h).view(16, 3, heads, 1, 64).unbind(1)
                pair[0], pair[1] = torch.cat([pair[0], k], 2), torch.cat([pair[1], v], 2)
                h = h + functional.scaled_dot_product_attention(q, *pair).flatten(1)
            words = (h @ table.weight.T).topk(2).indices[:, 0]
            if REMEDY != "each":
                cache = [[part.index_select(0, order) for part in pair] for pair in cache]
                continue
            for pair in cache:
                for at in range(2):
                    pair[at] = pair[at].index_select(0, order)


class StaticCache:
    """Keys and values of all layers, allocated once, for the longest text there may be."""

    def __init__(self, layers: int, batch: int, length: int, dtype: torch.dtype) -> None:
        shape = batch, 8, length, 64
        self.keys = [torch.zeros(shape, dtype=dtype, device=DEVICE) for _ in range(layers)]
        self.values = [torch.zeros(shape, dtype=dtype, device=DEVICE) for _ in range(layers)]


@program(half="kv-cache")
def drafted() -> None:
    """Caches of a draft's and of a target's layers, which constructors make in 32 bits before any request."""
    kind = torch.bfloat16 if REMEDY == "half" else torch.float32
    nets = [
        nn.ModuleList([nn.Linear(width, 3 * 512) for _ in range(count)]).to(DEVICE)
        for width, count in ((512, 12), (256, 4))
    ]
    caches = StaticCache(12, 4, 512, kind), StaticCache(4, 4, 1024, kind)
    with torch.no_grad():
        for at in range(12):
            for net, cache in zip(nets, caches, strict=True):
                h = floats(4, net[0].in_features)
                for i, layer in enumerate(net):
                    q, k, v = layer(h).view(4, 3, 8, 1, 64).unbind(1)
                    cache.keys[i][:, :, at : at + 1], cache.values[i][:, :, at : at + 1] = k, v
                    keys, values = (c[i][:, :, : at + 1].float() for c in (cache.keys, cache.values))
                    mixed = functional.scaled_dot_product_attention(q, keys, values).flatten(1)
                    h = h + mixed[:, : h.shape[1]]


@program(half="accumulation", chunks="distance-chunks")
def quantizer() -> None:
    """VQ-VAE: squared distances to all codes by their products, and one-hot vectors of the nearest."""
    encoder, decoder = nn.Conv2d(3, 64, 4, 4), nn.ConvTranspose2d(64, 3, 4, 4)
    codes = nn.Embedding(4096, 64)
    net = nn.ModuleList([encoder, decoder, codes]).to(DEVICE)

    def nearest(flat: torch.Tensor) -> torch.Tensor:
        apart = flat.pow(2).sum(1, keepdim=True) - 2 * flat @ codes.weight.t() + codes.weight.pow(2).sum(1)
        return apart.argmin(1)[:, None]

    def loss_of(x: torch.Tensor) -> torch.Tensor:
        z = encoder(x)
        flat = z.movedim(1, -1).reshape(-1, 64)
        index = torch.cat([nearest(part) for part in flat.chunk(8 if REMEDY == "chunks" else 1)])
        near = torch.zeros(len(flat), 4096, device=DEVICE).scatter_(1, index, 1)
        q = (near @ codes.weight).unflatten(0, (len(x), *z.shape[2:])).movedim(-1, 1)
        back = functional.mse_loss(decoder(z + (q - z).detach()), x)
        return functional.mse_loss(q.detach(), z) + functional.mse_loss(q, z.detach()) + back

    train(net, lambda: (floats(8, 3, 128, 128),), loss_of, torch.optim.Adam)


class Tokenizer(nn.Module):
    def __init__(self, codes: int, width: int) -> None:
        super().__init__()
        self.encoder, self.codes = nn.Conv2d(3, width, 4, 4), nn.Embedding(codes, width)

    def nearest(self, z: torch.Tensor) -> torch.Tensor:
        table = self.codes.weight
        product = torch.einsum("nd,dm->nm", z, table.t())
        apart = z.pow(2).sum(1, keepdim=True) + table.pow(2).sum(1) - 2 * product
        return apart.argmin(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = self.encoder(x).movedim(1, -1).reshape(-1, self.codes.embedding_dim)
        return torch.cat([self.nearest(part) for part in flat.chunk(8 if REMEDY == "chunks" else 1)])


@program(chunks="distance-chunks")
def tokens() -> None:
    """The tokens of pictures, by their distances to all codes within a module."""
    net = Tokenizer(8192, 64).to(DEVICE)
    with torch.no_grad():
        for _ in range(4):
            net(floats(16, 3, 128, 128)).cpu()
