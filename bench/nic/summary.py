"""Puts the lines of bench/nic/measure together: medians, spreads, and ratios within each round.

usage: summary.py LINES [JSON]
"""

import json
import statistics
import sys

REFERENCE = {"retrieve": "ib_write", "store": "ib_read"}
GOALS = {(4096, 16): 0.80, (32768, 16): 0.92, (32768, 1): 0.85, (1048576, 4): 0.98}


def read(path):
    """{(operation, size, depth, pages): {tool: {round: value}}}"""
    cases = {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            words = line.split()
            if len(words) != 7 or not words[0].isdigit():
                continue
            number, tool, operation = int(words[0]), words[1], words[2]
            case = (operation, int(words[3]), int(words[4]) if words[5] == "1" else 0, int(words[5]))
            cases.setdefault(case, {}).setdefault(tool, {})[number] = float(words[6])
    return cases


def spread(values):
    return {"median": statistics.median(values), "least": min(values), "most": max(values), "rounds": len(values)}


def ratios(ours, theirs):
    return [ours[n] / theirs[n] for n in sorted(ours) if theirs.get(n)]


def main(argv):
    cases = read(argv[1])
    rows = []
    send = cases.get(("send", 64, 1, 1), {}).get("ib_send_lat", {})
    for (operation, size, depth, pages), tools in sorted(cases.items()):
        ours = tools.get("kvrail")
        latency = size == 64
        theirs = {n: 2 * v for n, v in send.items()} if latency else tools.get(REFERENCE.get(operation, ""), {})
        if not ours or not ratios(ours, theirs):
            continue
        row = {"operation": operation, "size": size, "depth": depth, "pages_of_a_request": pages}
        row["unit"] = "ns" if latency else "bytes_per_second"
        row["kvrail"], row["reference"] = spread(list(ours.values())), spread(list(theirs.values()))
        row["ratio"] = spread(ratios(ours, theirs))
        row["goal"] = 1.5 if latency else GOALS.get((size, depth or 16))
        rows.append(row)
    print(f"{'':34}{'kvrail':>12}{'reference':>12}{'ratio':>8}{'least':>8}{'most':>8}  goal")
    for row in rows:
        name = f"{row['operation']} {row['size']} B"
        if row["unit"] == "ns":
            name += ", round trip"
            mine, other = f"{row['kvrail']['median'] / 1e3:.1f} us", f"{row['reference']['median'] / 1e3:.1f} us"
        else:
            name += f", {row['pages_of_a_request']} pages a request" if row["depth"] == 0 else f", depth {row['depth']}"
            mine, other = (f"{row[who]['median'] / 1e6:.1f} MB/s" for who in ("kvrail", "reference"))
        ratio = row["ratio"]
        print(
            f"{name:34}{mine:>12}{other:>12}{ratio['median']:8.2f}{ratio['least']:8.2f}{ratio['most']:8.2f}  "
            f"{row['goal'] or ''}"
        )
    if len(argv) > 2:
        with open(argv[2], "w", encoding="utf-8") as out:
            json.dump({"rows": rows}, out, indent=1)
            out.write("\n")
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv))
