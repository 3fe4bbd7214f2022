/** The frame of the page: conversations at the side, the current one, and the dialogs. */
import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import type { ChatBackend } from '../backend/contract.js';
import type { Chat } from '../state/chat.js';
import type { SettingsStore } from '../state/settings.js';
import { CompareDialog } from './compare-dialog.js';
import { Composer } from './composer.js';
import { Conversations } from './conversations.js';
import { KeyForm } from './key-form.js';
import { LiveView } from './live-view.js';
import { LoaderDialog } from './loader-dialog.js';
import { MessageList } from './message-list.js';
import { SettingsDialog } from './settings-dialog.js';
import { Toolbar } from './toolbar.js';

export interface AppProps {
  readonly chat: Chat;
  readonly settings: SettingsStore;
  readonly backend: ChatBackend;
}

/** Parts of the page that are open. */
export type Panel = 'none' | 'conversations' | 'settings' | 'loader' | 'compare';

export function App({ chat, settings, backend }: AppProps): JSX.Element {
  const panel = useSignal<Panel>('none');
  useShortcuts(chat);
  const { showsMetrics } = settings.settings.value;
  const close = (): void => {
    panel.value = 'none';
  };
  return (
    <div class={showsMetrics ? 'page with-live' : 'page'}>
      <a class="skip" href="#prompt">
        Skip to the prompt
      </a>
      <Conversations chat={chat} isOpen={panel.value === 'conversations'} onClose={close} />
      <main>
        <Toolbar chat={chat} settings={settings} panel={panel} canLoad={backend.loader !== undefined} />
        <MessageList chat={chat} settings={settings} />
        <footer>
          {chat.needsKey.value && <KeyForm chat={chat} settings={settings} />}
          {[chat.storageProblem.value, settings.problem.value, chat.problem.value].filter(Boolean).map((text) => (
            <p key={text} class="problem" role="alert">
              {text}
            </p>
          ))}
          <Composer chat={chat} />
        </footer>
      </main>
      {showsMetrics && <LiveView chat={chat} backend={backend} />}
      <OpenDialog chat={chat} settings={settings} backend={backend} panel={panel.value} onClose={close} />
      <div class="hidden" role="status" aria-live="polite">
        {chat.announcement.value}
      </div>
    </div>
  );
}

interface OpenDialogProps extends AppProps {
  readonly panel: Panel;
  readonly onClose: () => void;
}

function OpenDialog({ chat, settings, backend, panel, onClose }: OpenDialogProps): JSX.Element | null {
  const { loader } = backend;
  if (panel === 'settings') return <SettingsDialog settings={settings} onClose={onClose} />;
  if (panel === 'compare') {
    return <CompareDialog chat={chat} settings={settings} backend={backend} onClose={onClose} />;
  }
  if (panel !== 'loader' || loader === undefined) return null;
  return <LoaderDialog chat={chat} settings={settings} loader={loader} onClose={onClose} />;
}

/** Escape stops an answer; Ctrl+Shift+O starts a conversation. */
function useShortcuts(chat: Chat): void {
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      if (event.key === 'Escape' && chat.isAnswering.value) void chat.stop();
      if (event.key.toLowerCase() !== 'o' || !event.shiftKey || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      void chat.startNew().then(() => document.querySelector<HTMLElement>('#prompt')?.focus());
    };
    addEventListener('keydown', onKey);
    return () => removeEventListener('keydown', onKey);
  }, [chat]);
}
