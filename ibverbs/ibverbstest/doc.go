// Package ibverbstest is the conformance suite of ibverbs providers.
//
// A provider's test calls Run with a function that opens two contexts and says
// how queue pairs of one are linked to queue pairs of the other:
//
//	func TestConformance(t *testing.T) {
//		ibverbstest.Run(t, func(t *testing.T) ibverbstest.Pair { ... })
//	}
//
// The suite makes every other object itself, destroys it, and closes the
// contexts. What it expects is what the documentation of package ibverbs
// promises, no more: limits may be rounded up, a send may complete before the
// peer has looked at it. Notify, NotifyMissed and TwoCQsOneChannel count events:
// a provider that makes spurious ones skips them.
package ibverbstest
