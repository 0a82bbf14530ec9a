/* end_session.c - END_SESSION: from any state, and once more does no harm (pitfalls A02). */
#include "mgmt/state.h"

void end_session_start(struct management *management, struct request *request)
{
	const struct end_session_request *message = &request->message.end_session;
	struct registration *registration = registration_find(management, request, message->registration, false);
	struct session *session;

	if (!registration)
		return;
	session = session_find(management, registration->model, &message->session);
	if (session) {
		if (!chain_agrees(session, &message->session, &request->reply)) {
			reply_give(management, request);
			return;
		}
		COUNT(management, sessions_ended_total, 1);
		session_end(session, true, "the session was ended");
	}
	reply_give(management, request);
}
