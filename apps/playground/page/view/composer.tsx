/** Where the user writes. */
import { useSignal, type Signal } from '@preact/signals';
import type { JSX, TargetedEvent } from 'preact';
import { errorText } from '../backend/contract.js';
import type { Chat } from '../state/chat.js';
import type { Attachment } from '../state/messages.js';
import { AttachmentList } from './attachments.js';

export function Composer({ chat }: { readonly chat: Chat }): JSX.Element {
  const text = useSignal('');
  const attachments = useSignal<readonly Attachment[]>([]);
  const problem = useSignal('');
  const isAnswering = chat.isAnswering.value;
  const model = chat.model();
  const send = (): void => {
    if (isAnswering || model === undefined) return;
    const [written, attached] = [text.value, attachments.value];
    if (written.trim() === '') return;
    text.value = '';
    attachments.value = [];
    problem.value = '';
    void chat.send(written, attached);
  };
  const onSubmit = (event: Event): void => {
    event.preventDefault();
    send();
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    // Enter also ends the input of composed characters
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  };
  return (
    <form class="composer" onSubmit={onSubmit}>
      <Attached chat={chat} attachments={attachments} problem={problem} />
      <textarea
        id="prompt"
        rows={2}
        aria-label="Prompt"
        placeholder={model === undefined ? 'No model is loaded' : 'Ask something (Shift+Enter for a new line)'}
        value={text.value}
        onInput={(event) => (text.value = event.currentTarget.value)}
        onKeyDown={onKeyDown}
      />
      <AttachButton chat={chat} attachments={attachments} problem={problem} />
      {isAnswering ? (
        <button type="button" class="secondary" onClick={() => void chat.stop()}>
          Stop
        </button>
      ) : (
        <button type="submit" disabled={model === undefined || text.value.trim() === ''}>
          Send
        </button>
      )}
    </form>
  );
}

interface AttachedProps {
  readonly chat: Chat;
  readonly attachments: Signal<readonly Attachment[]>;
  /** Why files were refused. */
  readonly problem: Signal<string>;
}

/** The files of the next message, and why others are not among them. */
function Attached({ attachments, problem }: AttachedProps): JSX.Element {
  const remove = (index: number): void => {
    attachments.value = attachments.value.filter((_, other) => other !== index);
  };
  return (
    <div class="attached">
      <AttachmentList attachments={attachments.value} onRemove={remove} />
      {problem.value !== '' && (
        <p class="problem" role="alert">
          {problem.value}
        </p>
      )}
    </div>
  );
}

function AttachButton({ chat, attachments, problem }: AttachedProps): JSX.Element {
  const attach = async (files: readonly File[]): Promise<void> => {
    const refusals: string[] = [];
    problem.value = '';
    for (const file of files) {
      try {
        const attachment = await chat.attach(file, attachments.value);
        attachments.value = [...attachments.value, attachment];
      } catch (error) {
        refusals.push(errorText(error));
      }
    }
    problem.value = refusals.join('; ');
  };
  const onChange = ({ currentTarget: input }: TargetedEvent<HTMLInputElement>): void => {
    const files = [...(input.files ?? [])];
    // the same file may be chosen again
    input.value = '';
    void attach(files);
  };
  return (
    <label class="attach">
      <span class="hidden">Attach text files</span>
      <span aria-hidden="true">📎</span>
      <input type="file" multiple disabled={chat.model() === undefined} onChange={onChange} />
    </label>
  );
}
