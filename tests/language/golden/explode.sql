-- Linear, no state: the view is a bag.
select carrier, upper(stop) as stop, day from flights lateral view explode(stops) s as stop where stop <> ''
