"""Says of a history of transactions which anomalies it has.

Transactions append values, each of them unique, to lists, and read lists. A read of a list tells in which order its values came,
so who wrote over whom is known, not guessed. From that follow three kinds of edges between committed transactions:
ww (its value comes next), wr (it read the other's value as the last one), rw (the other's value came next after what it read).
The names of what is found are Adya's:

  G0        a cycle of ww edges: writes are interleaved
  G1a       a committed transaction read what was rolled back
  G1b       somebody read a value after which its writer appended another one to the same list
  G1c       a cycle of ww and wr edges
  G-single  a cycle with exactly one rw edge: a snapshot that is none
  lost update  a transaction read a list and appended to it, and another's value came in between
  order     two reads of a list of which neither is the beginning of the other, or a value twice
  lost      a committed value that the longest read of its list does not have
  own       a transaction did not read what it had appended

Write skew, a cycle with more than one rw edge, is none of these. Every list must be read at the end.
"""
import collections

READ, APPEND = "read", "append"
COMMITTED, ABORTED, UNKNOWN = "committed", "aborted", "unknown"

# ops: (APPEND, list, value) and (READ, list, values as a tuple), in order. Outcome UNKNOWN: it committed if a value of it was read.
Transaction = collections.namedtuple("Transaction", "name outcome ops")


def components(edges):
    """Strongly connected components of more than one node (Tarjan), as sets; edges: node -> nodes. Without recursion."""
    index, low, stack, on_stack, found = {}, {}, [], set(), []
    for root in list(edges):
        if root in index:
            continue
        work = [(root, iter(edges.get(root, ())))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, rest = work[-1]
            following = next(rest, None)
            if following is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component = set()
                    while node not in component:
                        component.add(stack.pop())
                    on_stack -= component
                    if len(component) > 1:
                        found.append(component)
            elif following not in index:
                index[following] = low[following] = len(index)
                stack.append(following)
                on_stack.add(following)
                work.append((following, iter(edges.get(following, ()))))
            elif following in on_stack:
                low[node] = min(low[node], index[following])
    return found


def way(edges, start, end):
    """A shortest way from one node to another, both included; None if there is none."""
    came, todo = {start: None}, collections.deque([start])
    while todo:
        node = todo.popleft()
        if node == end:
            nodes = [node]
            while came[nodes[-1]] is not None:
                nodes.append(came[nodes[-1]])
            return nodes[::-1]
        for following in edges.get(node, ()):
            if following not in came:
                came[following] = node
                todo.append(following)
    return None


class History:
    """Transactions, and what can be said of them."""

    def __init__(self, transactions):
        self.found = collections.defaultdict(list)
        self.writer = {v: t for t in transactions for kind, _, v in t.ops if kind == APPEND}
        seen = {v for t in transactions if t.outcome == COMMITTED for kind, _, values in t.ops if kind == READ for v in values}
        self.committed = [t for t in transactions if t.outcome == COMMITTED
                          or t.outcome == UNKNOWN and any(kind == APPEND and v in seen for kind, _, v in t.ops)]
        self.names = {t.name for t in self.committed}
        self.order = self._order()
        self.place = {v: at for values in self.order.values() for at, v in enumerate(values)}

    def _say(self, what, words):
        self.found[what].append(words)

    def _reads(self):
        return ((t, k, values) for t in self.committed for kind, k, values in t.ops if kind == READ)

    def _order(self):
        """The values of each list, as its longest read has them; every other read must be its beginning."""
        order = {}
        for _, k, values in self._reads():
            if len(values) > len(order.get(k, ())):
                order[k] = values
        for t, k, values in self._reads():
            if values != order.get(k, ())[:len(values)]:
                self._say("order", f"{t.name} read {k}: {values}, others {order[k]}")
        for k, values in order.items():
            if len(set(values)) < len(values):
                self._say("order", f"{k} has a value twice: {values}")
        return order

    def _appends(self, t, k):
        return [v for kind, of, v in t.ops if kind == APPEND and of == k]

    def _check_reads(self):
        for t, k, values in self._reads():
            for v in values:
                if v not in self.writer or self.writer[v].name not in self.names:
                    self._say("G1a", f"{t.name} read {v} in {k}, which nobody committed")
            last = self.writer.get(values[-1]) if values else None
            if last and last.name != t.name and self._appends(last, k)[-1] != values[-1]:
                self._say("G1b", f"{t.name} read {k} up to {values[-1]}, after which {last.name} appended more")
        for t in self.committed:
            own = collections.defaultdict(list)
            for kind, k, what in t.ops:
                if kind == APPEND:
                    own[k].append(what)
                elif any(v not in what for v in own[k]):
                    self._say("own", f"{t.name} appended {own[k]} to {k} and read {what}")

    def _check_appends(self):
        for t in self.committed:
            lengths = {}
            for kind, k, what in t.ops:
                if kind == READ:
                    lengths.setdefault(k, len(what))
                elif what not in self.place:
                    self._say("lost", f"{t.name} appended {what} to {k}")
                elif k in lengths:
                    between = self.order[k][lengths[k]:self.place[what]]
                    if any(self.writer.get(v, t).name != t.name for v in between):
                        self._say("lost update", f"{t.name} read {k} up to {lengths[k]}, then {between} came, then its {what}")

    def edges(self):
        """ww, wr, rw: each transaction's name -> the names of those that it comes before."""
        ww, wr, rw = ({} for _ in range(3))

        def add(edges, a, b):
            if a is not None and b is not None and a.name != b.name and a.name in self.names and b.name in self.names:
                edges.setdefault(a.name, set()).add(b.name)

        for values in self.order.values():
            for a, b in zip(values, values[1:]):
                add(ww, self.writer.get(a), self.writer.get(b))
        for t, k, values in self._reads():
            of_others = [v for v in values if self.writer.get(v) is not t]
            add(wr, self.writer.get(of_others[-1]) if of_others else None, t)
            rest = self.order.get(k, ())[len(values):]
            add(rw, t, self.writer.get(rest[0]) if rest else None)
        return ww, wr, rw

    def _check_cycles(self):
        ww, wr, rw = self.edges()
        both = {name: ww.get(name, set()) | wr.get(name, set()) for name in {*ww, *wr}}
        every = {name: both.get(name, set()) | rw.get(name, set()) for name in {*both, *rw}}
        for what, edges in (("G0", ww), ("G1c", both)):
            for component in components(edges):
                self._say(what, f"among {sorted(component)}")
        for component in components(every):
            for a in component:
                for b in rw.get(a, set()) & component:
                    nodes = way(both, b, a)
                    if nodes:
                        self._say("G-single", f"{a} -rw-> {' -> '.join(map(str, nodes))}")

    def check(self):
        """All that was found: name -> words for each."""
        self._check_reads()
        self._check_appends()
        self._check_cycles()
        return dict(self.found)


def anomalies(transactions):
    """See History.check."""
    return History(transactions).check()
