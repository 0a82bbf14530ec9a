"""A radix cache of pages, as an engine has it: shared prefixes, locked while requests use them, the least recently used
page goes first."""
from __future__ import annotations

from typing import Dict, List, Optional, Tuple


class Node:
    __slots__ = ("key", "page", "parent", "children", "locks", "used")

    def __init__(self, key: Tuple[int, ...], page: int, parent: Optional["Node"]) -> None:
        self.key, self.page, self.parent = key, page, parent
        self.children: Dict[Tuple[int, ...], "Node"] = {}
        self.locks = 0
        self.used = 0


class Radix:
    def __init__(self, page_tokens: int, pages: List[int]) -> None:
        self.page_tokens = page_tokens
        self.free = list(pages)
        self.root = Node((), -1, None)
        self.clock = 0

    def match(self, tokens: List[int]) -> List[Node]:
        self.clock += 1
        node, path = self.root, []
        for at in range(0, len(tokens) - self.page_tokens + 1, self.page_tokens):
            found = node.children.get(tuple(tokens[at : at + self.page_tokens]))
            if found is None:
                break
            found.used = self.clock
            path.append(found)
            node = found
        return path

    def lock(self, path: List[Node], by: int) -> None:
        for node in path:
            node.locks += by
            assert node.locks >= 0

    def add(self, path: List[Node], tokens: List[int], pages: List[int]) -> List[Node]:
        """Continues `path` by these tokens' pages. A page that is in the tree already is given back."""
        self.clock += 1
        node, path = (path[-1] if path else self.root), list(path)
        for number, page in enumerate(pages):
            key = tuple(tokens[number * self.page_tokens : (number + 1) * self.page_tokens])
            child = node.children.get(key)
            if child is None:
                child = node.children[key] = Node(key, page, node)
            else:
                self.free.append(page)
            child.used = self.clock
            path.append(child)
            node = child
        return path

    def _leaves(self) -> List[Node]:
        found, stack = [], [self.root]
        while stack:
            node = stack.pop()
            stack.extend(node.children.values())
            if not node.children and node is not self.root and node.locks == 0:
                found.append(node)
        return found

    def take(self, count: int) -> Optional[List[int]]:
        """Free pages, evicting what nobody uses; None: too few."""
        while len(self.free) < count:
            leaves = self._leaves()
            if not leaves:
                return None
            node = min(leaves, key=lambda leaf: (leaf.used, leaf.key))
            assert node.parent is not None
            del node.parent.children[node.key]
            self.free.append(node.page)
        taken, self.free = self.free[:count], self.free[count:]
        return taken
