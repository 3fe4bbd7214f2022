/** What an answer waits for: consent to a call, or the result of a function. Closing it refuses. */
import { useSignal } from '@preact/signals';
import { callText, type Consent } from '@winnow/mcp';
import type { JSX } from 'preact';
import type { Chat } from '../../state/chat.js';
import type { Question } from '../../state/tools/questions.js';
import type { Tools } from '../../state/tools/tools.js';
import { Dialog } from '../dialog.js';

interface QuestionDialogProps {
  readonly chat: Chat;
  readonly tools: Tools;
}

export function QuestionDialog({ chat, tools }: QuestionDialogProps): JSX.Element | null {
  const question = tools.questions.current.value;
  if (question === undefined) return null;
  // a dialog of its own for each question, so that no answer is meant for the one before
  const key = numberOf(question);
  if (question.type === 'consent') return <ConsentDialog key={key} chat={chat} question={question} />;
  return <ResultDialog key={key} chat={chat} question={question} />;
}

const numbers = new WeakMap<Question, number>();
let numQuestions = 0;

function numberOf(question: Question): number {
  const number = numbers.get(question) ?? numQuestions++;
  numbers.set(question, number);
  return number;
}

interface AskedProps<Type extends Question['type']> {
  readonly chat: Chat;
  readonly question: Extract<Question, { readonly type: Type }>;
}

function ConsentDialog({ chat, question }: AskedProps<'consent'>): JSX.Element {
  const { tool, server, arguments: values } = callText(question.request);
  const answer = (consent: Consent) => (): void => question.answer(consent);
  return (
    <Dialog title={`Call ${tool}?`} onClose={answer('no')}>
      <p>
        The model wants to call <code>{tool}</code> of the server {server} with
      </p>
      <Arguments text={values} />
      <div class="actions">
        <button type="button" onClick={answer('yes')}>
          Call it
        </button>
        <button type="button" class="secondary" onClick={answer('always')}>
          Always call this tool, until the page is closed
        </button>
        <button type="button" class="secondary" onClick={answer('no')}>
          Do not call it
        </button>
        <StopButton chat={chat} />
      </div>
    </Dialog>
  );
}

function ResultDialog({ chat, question }: AskedProps<'result'>): JSX.Element {
  const { tool, arguments: values } = callText(question.request);
  const result = useSignal('');
  const onSubmit = (event: Event): void => {
    event.preventDefault();
    question.answer(result.value);
  };
  return (
    <Dialog title={`What does ${tool} return?`} onClose={() => question.answer(undefined)}>
      <p>
        The model calls your function <code>{tool}</code> with
      </p>
      <Arguments text={values} />
      <form onSubmit={onSubmit}>
        <label>
          Result
          <textarea rows={3} value={result.value} onInput={(event) => (result.value = event.currentTarget.value)} />
        </label>
        <div class="actions">
          <button type="submit">Return it</button>
          <button type="button" class="secondary" onClick={() => question.answer(undefined)}>
            No result
          </button>
          <StopButton chat={chat} />
        </div>
      </form>
    </Dialog>
  );
}

/** Has the focus first, so that what was typed before the question does not answer it. */
function Arguments({ text }: { readonly text: string }): JSX.Element {
  return (
    <pre class="arguments" aria-label="Arguments" role="region" tabIndex={0} autofocus>
      {text}
    </pre>
  );
}

function StopButton({ chat }: { readonly chat: Chat }): JSX.Element {
  return (
    <button type="button" class="secondary" onClick={() => void chat.stop()}>
      Stop the answer
    </button>
  );
}
