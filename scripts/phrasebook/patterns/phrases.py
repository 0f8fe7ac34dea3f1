"""Greetings, courtesies and idioms; all of them are in the training set."""

from __future__ import annotations

from collections.abc import Iterator

from phrasebook.clause import Pair

TEXT = """
Hello! | Hallo!
Hi! | Hi!
Good morning! | Guten Morgen!
Good afternoon! | Guten Tag!
Good evening! | Guten Abend!
Good night! | Gute Nacht!
Goodbye! | Auf Wiedersehen!
Bye! | Tschüss!
See you tomorrow! | Bis morgen!
See you later! | Bis später!
See you soon! | Bis bald!
See you on Monday! | Bis Montag!
Thank you. | Danke.
Thank you very much. | Vielen Dank.
Thanks. | Danke.
Thanks a lot. | Vielen Dank.
You're welcome. | Bitte schön.
Please. | Bitte.
Yes. | Ja.
No. | Nein.
Maybe. | Vielleicht.
Of course. | Natürlich.
Yes, please. | Ja, bitte.
No, thank you. | Nein, danke.
Excuse me. | Entschuldigung.
I'm sorry. | Es tut mir leid.
I am sorry. | Es tut mir leid.
I'm very sorry. | Es tut mir sehr leid.
We're sorry. | Es tut uns leid.
How are you? | Wie geht es dir?
How are you, Mr Weber? | Wie geht es Ihnen, Herr Weber?
How are you, Mrs Klein? | Wie geht es Ihnen, Frau Klein?
How are you, children? | Wie geht es euch, Kinder?
How is Tom? | Wie geht es Tom?
How is Anna? | Wie geht es Anna?
How is your mother? | Wie geht es deiner Mutter?
How is your father? | Wie geht es deinem Vater?
I'm fine. | Mir geht es gut.
I'm fine, thank you. | Mir geht es gut, danke.
He's fine. | Ihm geht es gut.
She's fine. | Ihr geht es gut.
We're fine. | Uns geht es gut.
What's your name? | Wie heißt du?
What is your name? | Wie heißt du?
My name is Tom. | Ich heiße Tom.
My name is Anna. | Ich heiße Anna.
What's his name? | Wie heißt er?
His name is Ben. | Er heißt Ben.
What's her name? | Wie heißt sie?
Her name is Lisa. | Sie heißt Lisa.
Welcome! | Herzlich willkommen!
Good luck! | Viel Glück!
Have fun! | Viel Spaß!
Happy birthday! | Alles Gute zum Geburtstag!
Merry Christmas! | Frohe Weihnachten!
Happy New Year! | Ein frohes neues Jahr!
Get well soon! | Gute Besserung!
Enjoy your meal! | Guten Appetit!
Cheers! | Prost!
Congratulations! | Herzlichen Glückwunsch!
Have a nice day! | Einen schönen Tag noch!
Have a nice weekend! | Ein schönes Wochenende!
Have a good trip! | Gute Reise!
Help! | Hilfe!
Watch out! | Pass auf!
Be careful! | Sei vorsichtig!
Be quiet! | Sei leise!
Come in! | Komm herein!
Come here! | Komm her!
Sit down! | Setz dich!
Wait a moment! | Warte einen Moment!
One moment, please. | Einen Moment, bitte.
Just a moment. | Einen Moment.
What's that? | Was ist das?
What is that? | Was ist das?
Who is that? | Wer ist das?
What's wrong? | Was ist los?
What happened? | Was ist passiert?
That's right. | Das stimmt.
That's wrong. | Das ist falsch.
That's not true. | Das ist nicht wahr.
That's good. | Das ist gut.
That's a pity. | Das ist schade.
That's enough. | Das reicht.
That's all. | Das ist alles.
That's my mother. | Das ist meine Mutter.
That's impossible. | Das ist unmöglich.
It doesn't matter. | Das macht nichts.
No problem. | Kein Problem.
All right. | In Ordnung.
I don't know. | Ich weiß nicht.
I don't know yet. | Ich weiß es noch nicht.
I know. | Ich weiß.
I think so. | Ich glaube schon.
I hope so. | Ich hoffe es.
I don't understand. | Ich verstehe nicht.
I don't understand that. | Das verstehe ich nicht.
Do you understand? | Verstehst du?
Do you understand me? | Verstehst du mich?
Do you speak English? | Sprichst du Englisch?
Do you speak English, Mr Weber? | Sprechen Sie Englisch, Herr Weber?
I love you. | Ich liebe dich.
I miss you. | Ich vermisse dich.
I need help. | Ich brauche Hilfe.
Do you need help? | Brauchst du Hilfe?
Can you help me? | Kannst du mir helfen?
Can you help me, Mr Weber? | Können Sie mir helfen, Herr Weber?
What time is it? | Wie spät ist es?
What day is it today? | Welcher Tag ist heute?
Where are you? | Wo bist du?
Where is the toilet? | Wo ist die Toilette?
Where is the station? | Wo ist der Bahnhof?
What are you doing? | Was machst du?
How much is that? | Wie viel kostet das?
The bill, please. | Die Rechnung, bitte.
A coffee, please. | Einen Kaffee, bitte.
A beer, please. | Ein Bier, bitte.
A glass of water, please. | Ein Glas Wasser, bitte.
Are we there yet? | Sind wir schon da?
Are we done yet? | Sind wir schon fertig?
We aren't done yet. | Wir sind noch nicht fertig.
I'm not done yet. | Ich bin noch nicht fertig.
I'm on my way. | Ich bin unterwegs.
I'm late. | Ich bin spät dran.
I'm in a hurry. | Ich habe es eilig.
I'm bored. | Mir ist langweilig.
I'm from Germany. | Ich komme aus Deutschland.
Are you from Germany? | Kommst du aus Deutschland?
The house is on fire. | Das Haus brennt.
The sun is shining. | Die Sonne scheint.
The food is ready. | Das Essen ist fertig.
Everything is fine. | Alles ist in Ordnung.
Nothing happened. | Nichts ist passiert.
Nobody is here. | Niemand ist hier.
Nobody knows that. | Niemand weiß das.
Someone is at the door. | Jemand ist an der Tür.
Let's go! | Gehen wir!
Let's begin! | Fangen wir an!
Me too. | Ich auch.
Me neither. | Ich auch nicht.
And you? | Und du?
Why? | Warum?
Why not? | Warum nicht?
Who? | Wer?
What? | Was?
Where? | Wo?
When? | Wann?
How? | Wie?
Really? | Wirklich?
"""


def phrases() -> Iterator[Pair]:
    """Greetings, courtesies and idioms."""
    for line in TEXT.strip().splitlines():
        en, de = line.split(" | ")
        yield en, de
