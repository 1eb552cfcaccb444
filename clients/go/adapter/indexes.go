package adapter

import (
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
)

const indexesMax = 100_000

// Indexes are a set of a vpod's vreplicas, as an assignment has them: "0-1,5". Empty: the pool's vreplicas
// are alike.
type Indexes string

// All yields the indexes in ascending order.
func (i Indexes) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for first, last := range i.ranges() {
			for index := first; index <= last; index++ {
				if !yield(index) {
					return
				}
			}
		}
	}
}

// Contains tells whether an index is one of them.
func (i Indexes) Contains(index int) bool {
	for first, last := range i.ranges() {
		if first <= index && index <= last {
			return true
		}
	}
	return false
}

// ranges yields the first and the last index of each range, up to one that cannot be read.
func (i Indexes) ranges() iter.Seq2[int, int] {
	return func(yield func(int, int) bool) {
		for part := range strings.SplitSeq(string(i), ",") {
			first, last, err := readRange(part)
			if err != nil || !yield(first, last) {
				return
			}
		}
	}
}

// check fails unless there are count indexes in ascending order, each less than of; of 0 is no limit.
func (i Indexes) check(count, of int) error {
	if i == "" {
		return nil
	}
	found, next := 0, 0
	for part := range strings.SplitSeq(string(i), ",") {
		first, last, err := readRange(part)
		if err != nil {
			return err
		}
		if first < next || last < first {
			return errors.New("must ascend")
		}
		found, next = found+last-first+1, last+1
		if found > indexesMax {
			return fmt.Errorf("must have at most %d indexes", indexesMax)
		}
	}
	if found != count {
		return fmt.Errorf("has %d indexes for %d vreplicas", found, count)
	}
	if of > 0 && next > of {
		return fmt.Errorf("must be less than %d", of)
	}
	return nil
}

func readRange(text string) (first, last int, err error) {
	from, to, isRange := strings.Cut(text, "-")
	if !isRange {
		to = from
	}
	// 31 bits: the sum of two cannot overflow.
	low, errLow := strconv.ParseUint(from, 10, 31)
	high, errHigh := strconv.ParseUint(to, 10, 31)
	if errLow != nil || errHigh != nil {
		return 0, 0, errors.New("must be like 0-1,5")
	}
	return int(low), int(high), nil
}
