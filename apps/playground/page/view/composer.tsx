/** Where the user writes. */
import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import type { Chat } from '../state/chat.js';

export function Composer({ chat }: { readonly chat: Chat }): JSX.Element {
  const text = useSignal('');
  const isAnswering = chat.isAnswering.value;
  const model = chat.model();
  const send = (): void => {
    if (isAnswering || model === undefined) return;
    const written = text.value;
    text.value = '';
    void chat.send(written);
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
      <textarea
        id="prompt"
        rows={2}
        aria-label="Prompt"
        placeholder={model === undefined ? 'No model is loaded' : 'Ask something (Shift+Enter for a new line)'}
        value={text.value}
        onInput={(event) => (text.value = event.currentTarget.value)}
        onKeyDown={onKeyDown}
      />
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
