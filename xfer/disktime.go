package xfer

import "gdrcp/xfer/internal/stat"

// diskTime is the time that a worker of a sink spends on files, from one moment on: with its turn,
// or while it waits without one.
type diskTime struct {
	lander *lander
	from   int64 // by stat.Now
	waits  bool
}

// onDisk starts the time, and gives up the worker's turn if every call may wait for a server.
func (w *lander) onDisk(from int64) (d diskTime) {
	d = diskTime{lander: w, from: from}
	if w.turn != nil && w.sink.store.AsksServer() {
		d.leaveTurn()
	}
	return d
}

// leaveTurn gives up the worker's turn, if it takes turns.
func (d *diskTime) leaveTurn() {
	if d.lander.turn != nil {
		d.lander.turn.Leave()
		d.waits = true
	}
}

// takeTurn waits for the turn again. That wait is not the disk's time.
func (d *diskTime) takeTurn() {
	if d.waits {
		d.lander.sink.Session.Waited(stat.Disk, d.from)
		d.lander.turn.Take()
		d.from, d.waits = stat.Now(), false
	}
}

// end ends the time. The worker has its turn then.
func (d *diskTime) end() {
	d.takeTurn()
	d.lander.spent(stat.Disk, d.from)
}
