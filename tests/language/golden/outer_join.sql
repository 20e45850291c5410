-- every airline, also those that do not fly
select a.name, f.day, f.seats from airlines a full join flights f on a.carrier = f.carrier
