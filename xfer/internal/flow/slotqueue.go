package flow

import (
	"slices"
	"sync"
)

// SlotQueue passes slots to workers: to each the first slot that is near to it, or else the first
// of all. Several goroutines may use it concurrently.
type SlotQueue[T any] struct {
	// Ready has a token for each slot. A worker that has taken a token takes a slot with Next.
	// Ready is closed, after its tokens, when no more slots come.
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

// Next takes a slot for a token of Ready. isNear may be nil if all slots are equally near.
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
