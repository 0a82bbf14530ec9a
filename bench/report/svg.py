"""Charts as SVG text, with nothing but the standard library: what scripts/bench-report and bench/peers/run draw.

Colours are set by CSS classes, so that a page may show them on a dark ground as well.
"""
import html
import math

COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#000000"]
STYLE = (
    "<style>text{font:12px sans-serif;fill:#222}.t{font-weight:bold;font-size:14px}.g{stroke:#ddd}.a{stroke:#444}"
    "@media (prefers-color-scheme:dark){text{fill:#ddd}.g{stroke:#444}.a{stroke:#aaa}}</style>"
)


def number(value):
    """Short text of a number: 0.0012, 3.4, 120, 12k, 3.4M."""
    if value == 0:
        return "0"
    for factor, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= factor:
            return "%.3g%s" % (value / (1e3 if letter == "k" else factor), letter)
    return "%.3g" % value


def size(value):
    """Bytes: 4 KiB, 1 MiB."""
    for power, letter in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if value >= 1 << power:
            return "%g %s" % (value / (1 << power), letter)
    return "%g B" % value


def ticks(low, high, log):
    if log:
        first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
        found = [10.0**p for p in range(first, last + 1)]
        if len(found) <= 3:
            found = sorted(found + [3 * t for t in found])
        return [t for t in found if low * 0.999 <= t <= high * 1.001]
    span = high - low or 1
    step = 10 ** math.floor(math.log10(span / 4))
    step *= next(f for f in (1, 2, 2.5, 5, 10) if span / (step * f) <= 6)
    at = math.ceil(low / step - 1e-9) * step
    found = []
    while at <= high + 1e-9 * span:
        found.append(at)
        at += step
    return found


class Frame:
    def __init__(self, title, x_label, y_label, width=560, height=340):
        self.width, self.height = width, height
        self.left, self.right, self.top, self.bottom = 64, 12, 34, 46
        self.parts = [
            '<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img">'
            % (width, height, width, height),
            STYLE,
            '<text class="t" x="%d" y="20">%s</text>' % (self.left, html.escape(title)),
            '<text x="%d" y="%d" text-anchor="middle">%s</text>'
            % ((self.left + width - self.right) / 2, height - 8, html.escape(x_label)),
            '<text transform="translate(14,%d) rotate(-90)" text-anchor="middle">%s</text>'
            % ((self.top + height - self.bottom) / 2, html.escape(y_label)),
        ]

    def x(self, part):
        return self.left + part * (self.width - self.left - self.right)

    def y(self, part):
        return self.height - self.bottom - part * (self.height - self.top - self.bottom)

    def line(self, x1, y1, x2, y2, css):
        self.parts.append('<line class="%s" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>' % (css, x1, y1, x2, y2))

    def text(self, x, y, words, anchor="middle"):
        self.parts.append('<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>' % (x, y, anchor, html.escape(words)))

    def legend(self, names):
        for i, name in enumerate(names):
            y = self.top + 8 + 16 * i
            self.parts.append(
                '<rect x="%d" y="%d" width="10" height="10" fill="%s"/>' % (self.left + 8, y - 9, COLOURS[i % 8])
            )
            self.text(self.left + 23, y, name, "start")

    def done(self):
        return "\n".join(self.parts + ["</svg>"])


def lines(title, x_label, y_label, series, x_log=False, y_log=False, x_text=number):
    """series: {name: [(x, y), ...]}; points without a value are left out. "" when there is nothing to draw."""
    series = {n: [(x, y) for x, y in p if y is not None and (not y_log or y > 0)] for n, p in series.items()}
    series = {n: p for n, p in series.items() if p}
    if not series:
        return ""
    xs = sorted({x for p in series.values() for x, _ in p})
    ys = [y for p in series.values() for _, y in p]
    y_low, y_high = (min(ys) * 0.8, max(ys) * 1.3) if y_log else (0, max(ys) * 1.15 or 1)
    x_low, x_high = xs[0], xs[-1]

    def place(value, low, high, log):
        if log:
            value, low, high = math.log(value), math.log(low), math.log(high)
        return (value - low) / (high - low) if high > low else 0.5

    frame = Frame(title, x_label, y_label)
    for tick in ticks(y_low, y_high, y_log):
        y = frame.y(place(tick, y_low, y_high, y_log))
        frame.line(frame.left, y, frame.width - frame.right, y, "g")
        frame.text(frame.left - 6, y + 4, number(tick), "end")
    for x in xs if len(xs) <= 8 else ticks(x_low, x_high, x_log):
        at = frame.x(place(x, x_low, x_high, x_log))
        frame.line(at, frame.y(0), at, frame.y(0) + 4, "a")
        frame.text(at, frame.y(0) + 17, x_text(x))
    frame.line(frame.left, frame.y(0), frame.width - frame.right, frame.y(0), "a")
    frame.line(frame.left, frame.y(0), frame.left, frame.y(1), "a")
    for i, points in enumerate(series.values()):
        placed = [
            (frame.x(place(x, x_low, x_high, x_log)), frame.y(place(y, y_low, y_high, y_log))) for x, y in sorted(points)
        ]
        frame.parts.append(
            '<polyline fill="none" stroke="%s" stroke-width="2" points="%s"/>'
            % (COLOURS[i % 8], " ".join("%.1f,%.1f" % p for p in placed))
        )
        frame.parts.extend('<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>' % (x, y, COLOURS[i % 8]) for x, y in placed)
    frame.legend(series)
    return frame.done()


def bars(title, y_label, groups, names, log=False):
    """groups: [(label, [value or None for each of names])]. "" when there is nothing to draw."""
    values = [v for _, row in groups for v in row if v]
    if not values:
        return ""
    low, high = (10 ** math.floor(math.log10(min(values))), max(values) * 2) if log else (0, max(values) * 1.3)
    frame = Frame(title, "", y_label, width=max(560, 60 + 26 * len(groups) * len(names)))

    def part(value):
        return math.log(value / low) / math.log(high / low) if log else value / high

    for tick in ticks(low, high, log):
        frame.line(frame.left, frame.y(part(tick)), frame.width - frame.right, frame.y(part(tick)), "g")
        frame.text(frame.left - 6, frame.y(part(tick)) + 4, number(tick), "end")
    frame.line(frame.left, frame.y(0), frame.width - frame.right, frame.y(0), "a")
    wide = 1 / len(groups)
    for i, (label, row) in enumerate(groups):
        frame.text(frame.x((i + 0.5) * wide), frame.y(0) + 17, label)
        for j, value in enumerate(row):
            if not value:
                continue
            x = frame.x((i + 0.1 + 0.8 * j / len(names)) * wide)
            width = (frame.x(0.8 * wide / len(names)) - frame.x(0)) * 0.9
            frame.parts.append(
                '<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"><title>%s, %s: %s</title></rect>'
                % (x, frame.y(part(value)), width, frame.y(0) - frame.y(part(value)), COLOURS[j % 8],
                   html.escape(names[j]), html.escape(label), number(value))
            )
            frame.text(x + width / 2, frame.y(part(value)) - 3, number(value))
    frame.legend(names)
    return frame.done()
