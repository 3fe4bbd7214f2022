/** Asks for the API key of a server that wants one. */
import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import type { Chat } from '../state/chat.js';
import type { SettingsStore } from '../state/settings.js';
import { SecretField } from './fields.js';

interface KeyFormProps {
  readonly chat: Chat;
  readonly settings: SettingsStore;
}

export function KeyForm({ chat, settings }: KeyFormProps): JSX.Element {
  const key = useSignal('');
  const onSubmit = (event: Event): void => {
    event.preventDefault();
    settings.apiKey.value = key.value.trim();
    void chat.refreshModels();
  };
  return (
    <form class="key" onSubmit={onSubmit}>
      <SecretField label="API key, kept until this tab closes" value={key} />
      <button type="submit">Use the key</button>
    </form>
  );
}
