// Package ring makes the memory that chunks travel through: the slots of one end on one
// rail, mapped and registered once for a session. Place makes a ring in host memory or
// in a GPU's. For a GPU, it finds by trial how the rail's device reaches that memory.
// That way is the ring's rung. It then prepares the workers that move chunks into and
// out of the GPU's memory.
package ring
