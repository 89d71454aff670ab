package link

import "gdrcp/xfer/internal/credit"

// Trace takes the steps that an end of a session takes by the rules of package credit. It
// is nil but in tests, which check the steps of both ends (credittest). A step is told
// under the lock under which it is taken, and before the peer can hear of it. Messages do
// not say which end they are of: the test knows.
type Trace func(credit.Step)

func (t Trace) Step(s credit.Step) {
	if t != nil {
		t(s)
	}
}
