package flow

import (
	"slices"
	"sync"
)

// SlotQueue hands slots to workers: to each the first that is near to it, or else the first
// of all. Several goroutines at once may use it.
type SlotQueue[T any] struct {
	// Ready has a token for each slot. Who has taken one takes a slot by next. It is closed,
	// behind its tokens, where no more slots come.
	Ready chan struct{}

	mu    sync.Mutex
	slots []T
}

// NewSlotQueue returns a queue that never has more than most slots.
func NewSlotQueue[T any](most int) SlotQueue[T] {
	return SlotQueue[T]{Ready: make(chan struct{}, most), slots: make([]T, 0, most)}
}

// Put never blocks.
func (q *SlotQueue[T]) Put(slot T) {
	q.mu.Lock()
	q.slots = append(q.slots, slot)
	q.mu.Unlock()
	q.Ready <- struct{}{}
}

// Next takes a slot for a token of ready. isNear may be nil, where all are as near.
func (q *SlotQueue[T]) Next(isNear func(T) bool) T {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := 0
	if isNear != nil {
		i = max(slices.IndexFunc(q.slots, isNear), 0)
	}
	slot := q.slots[i]
	q.slots = slices.Delete(q.slots, i, i+1)
	return slot
}
