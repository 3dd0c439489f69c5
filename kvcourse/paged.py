"""Blocks instead of rooms: how a server keeps the caches of many requests in one memory.

A cache of its own for each request has to be as long as the longest answer might become, and most of it stays empty.
Cut the memory into blocks of a few tokens, give a request a block when it has filled the one before, and write down in
which order its blocks come: then no request needs a neighbouring piece of memory, and equal beginnings are kept once.

Source: Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention", 2023. This is
the idea in small; keys and values themselves are in `paged_memory.py`.
"""


class OutOfBlocks(RuntimeError):
    """No block is free. Nothing has changed; end a request, or preempt one."""


class BlockPool:
    """`blocks` blocks of `size` token slots each, and for each request a table of the blocks that hold its tokens.

    Keeps: who owns what, no keys and values. A block may belong to several requests, which
    began with the same tokens: `users` counts them. Nobody writes into a block that others read.
    Wasted: at most `size - 1` slots a request, those at the end of its last block.
    """

    def __init__(self, blocks, size=16):
        self.size = size
        self.free = list(range(blocks))
        self.users = [0] * blocks
        self.tables, self.lengths = {}, {}  # request -> its blocks in order, its tokens

    def start(self, name, tokens):
        """A new request with a prompt of `tokens` tokens. OutOfBlocks if they don't fit."""
        self.tables[name], self.lengths[name] = [], 0
        try:
            self.append(name, tokens)
        except OutOfBlocks:
            self.end(name)
            raise

    def fork(self, name, of):
        """A new request that begins with all tokens of another one. Nothing is copied; each of its blocks has one user
        more."""
        self.tables[name], self.lengths[name] = list(self.tables[of]), self.lengths[of]
        for block in self.tables[name]:
            self.users[block] += 1

    def append(self, name, tokens=1):
        """Room for `tokens` tokens more. Returns (block, its copy) where the last block was shared, otherwise None.

        A request that is about to write into a block with other users gets a copy of it first: copy on write.
        """
        table, end = self.tables[name], self.lengths[name] + tokens
        shared = self.lengths[name] % self.size != 0 and self.users[table[-1]] > 1
        missing = -(-end // self.size) - len(table)
        if missing + shared > len(self.free):
            raise OutOfBlocks(f"{name} needs {missing + shared} more blocks, {len(self.free)} are free")
        copied = None
        if shared:
            copied = (table.pop(), self._take())
            self._give_back(copied[0])
            table.append(copied[1])
        table += [self._take() for _ in range(missing)]
        self.lengths[name] = end
        return copied

    def end(self, name):
        """A request is over: its blocks are free, except those that others use."""
        for block in self.tables.pop(name):
            self._give_back(block)
        return self.lengths.pop(name)

    def preempt(self):
        """Take the blocks of the request that came last. Returns (its name, the tokens to compute again later)."""
        name = list(self.tables)[-1]
        return name, self.end(name)

    def slots(self, name):
        """For each token of a request, the number of the slot in which it lies."""
        table = self.tables[name]
        return [table[p // self.size] * self.size + p % self.size for p in range(self.lengths[name])]

    def filled(self):
        """{block in use: tokens in it}, a shared block once."""
        filled = {}
        for name, table in self.tables.items():
            for place, block in enumerate(table):
                tokens = min(self.lengths[name] - place * self.size, self.size)
                filled[block] = max(filled.get(block, 0), tokens)
        return dict(sorted(filled.items()))

    @property
    def wasted(self):
        """Slots that are taken and hold no token."""
        return sum(self.size - tokens for tokens in self.filled().values())

    def miscounted(self):
        """Blocks whose count of users is wrong: {block: (counted, in so many tables)}. Empty when all is well."""
        found = [sum(block in table for table in self.tables.values()) for block in range(len(self.users))]
        pairs = enumerate(zip(self.users, found, strict=True))
        return {block: (counted, real) for block, (counted, real) in pairs if counted != real}

    def _take(self):
        block = self.free.pop(0)
        self.users[block] = 1
        return block

    def _give_back(self, block):
        self.users[block] -= 1
        if self.users[block] == 0:
            self.free.append(block)
