// numbers.h - what benchmarks say of the values that they measured, and the clock in seconds.
#ifndef KVRAIL_BENCH_NUMBERS_H
#define KVRAIL_BENCH_NUMBERS_H

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/clock.h"

namespace bench
{

// part: 0.5 the median, 0 the least, 1 the greatest. 0 of none.
inline double percentile(std::vector<double> values, double part)
{
	if (values.empty())
		return 0;
	std::sort(values.begin(), values.end());
	return values[std::min(values.size() - 1, size_t(double(values.size()) * part))];
}

inline double median(std::vector<double> values)
{
	return percentile(std::move(values), 0.5);
}

inline double seconds()
{
	return double(clock_now_ns()) * 1e-9;
}

} // namespace bench

#endif
