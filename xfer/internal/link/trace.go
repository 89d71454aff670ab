package link

import "gdrcp/xfer/internal/credit"

// Trace receives the steps that an end of a session takes by the rules of package credit. It is nil
// except in tests, which check the steps of both ends (credittest). A step is reported under the
// lock under which it is taken, and before the peer can receive its result. Messages do not name
// their sender: the test knows it.
type Trace func(credit.Step)

func (t Trace) Step(s credit.Step) {
	if t != nil {
		t(s)
	}
}
