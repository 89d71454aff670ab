// Package ring makes the memory for chunks in transit: the slots of one end on one rail,
// mapped and registered once for a session. Place makes a ring in host memory or in a
// GPU's. For a GPU, it determines by a probe how the rail's device can access that memory:
// the ring's memory path (wire.Rung). Then it prepares the workers that move chunks into
// and out of the GPU's memory.
package ring
